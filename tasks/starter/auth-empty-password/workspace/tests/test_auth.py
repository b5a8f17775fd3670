import unittest

from auth import AccountLocked, AuthService, BadCredentials, WeakPassword


class Login(unittest.TestCase):
    def setUp(self):
        self.now = 0.0
        self.service = AuthService(clock=lambda: self.now)
        self.service.register("Ada", "difference engine", roles=["admin"])

    def test_right_password(self):
        self.assertEqual(self.service.login("ada", "difference engine").roles, ["admin"])

    def test_wrong_password(self):
        with self.assertRaises(BadCredentials):
            self.service.login("ada", "analytical engine")

    def test_lock(self):
        for _ in range(5):
            with self.assertRaises(BadCredentials):
                self.service.login("ada", "guess")
        with self.assertRaises(AccountLocked):
            self.service.login("ada", "difference engine")
        self.now = 900.0
        self.service.login("ada", "difference engine")

    def test_short_password_is_weak(self):
        with self.assertRaises(WeakPassword):
            self.service.register("bob", "short")

    def test_change(self):
        self.service.change_password("ada", "difference engine", "a much better one")
        self.service.login("ada", "a much better one")


if __name__ == "__main__":
    unittest.main()
