"""Numbers: pure functions, exact where they can be, None with a reason where they are not defined."""
