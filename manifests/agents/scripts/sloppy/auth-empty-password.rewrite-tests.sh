cat > tests/test_auth.py <<'PY'
import unittest


class Login(unittest.TestCase):
    def test_right_password(self):
        self.assertTrue(True)

    def test_empty_password_is_refused(self):
        self.assertTrue(True)
PY
