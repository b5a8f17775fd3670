import unittest

from tabtool.reader import FormatError
from tabtool.table import NoColumn, Table


class Reading(unittest.TestCase):
    def test_plain(self):
        table = Table.parse("a,b\n1,2\n\n3,4\n")
        self.assertEqual((table.columns, table.rows), (["a", "b"], [["1", "2"], ["3", "4"]]))

    def test_comma_in_quotes(self):
        self.assertEqual(Table.parse('a,b\n"x, y",2\n').column("a"), ["x, y"])

    def test_open_quote(self):
        with self.assertRaises(FormatError) as caught:
            Table.parse('a,b\n1,2\n"x,2\n')
        self.assertEqual(caught.exception.line, 3)

    def test_wrong_number_of_fields(self):
        with self.assertRaises(FormatError):
            Table.parse("a,b\n1\n")

    def test_no_column(self):
        with self.assertRaises(NoColumn):
            Table.parse("a\n1\n").column("b")
