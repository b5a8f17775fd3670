from subject import run, script

PARSE = """
from tabtool.reader import FormatError, read_records
def parse(text):
    try:
        return [[line, fields] for line, fields in read_records(text)]
    except FormatError as error:
        return ["FormatError", error.line]
"""


def parse(*texts):
    return script(PARSE + f"result = [parse(t) for t in {texts!r}]")


def test_quotes():
    assert parse('a,"x ""y"" z",c', '"""",""', '5" pipe,b"c"', '"a,b","c"') == [
        [[1, ["a", 'x "y" z', "c"]]],
        [[1, ['"', ""]]],
        [[1, ['5" pipe', 'b"c"']]],
        [[1, ["a,b", "c"]]],
    ]


def test_line_breaks_in_quotes():
    assert parse('a\n"x\ny",2\nb', '"x\r\ny",1\r\n2,3\r\n', '"\n\n",z\n\nq') == [
        [[1, ["a"]], [2, ["x\ny", "2"]], [4, ["b"]]],
        [[1, ["x\r\ny", "1"]], [3, ["2", "3"]]],
        [[1, ["\n\n", "z"]], [5, ["q"]]],
    ]


def test_empty_fields():
    assert parse("a,b,\n,,\n,x", 'a,""\n"",b', '""\n"x"', ",") == [
        [[1, ["a", "b", ""]], [2, ["", "", ""]], [3, ["", "x"]]],
        [[1, ["a", ""]], [2, ["", "b"]]],
        [[1, [""]], [2, ["x"]]],
        [[1, ["", ""]]],
    ]


def test_ends_of_lines():
    assert parse("a,b\r\nc,d\r\n", "a\n\n\r\nb", "", "\n\n", "a\u2028b\x0bc,d\n") == [
        [[1, ["a", "b"]], [2, ["c", "d"]]],
        [[1, ["a"]], [4, ["b"]]],
        [],
        [],
        [[1, ["a\u2028b\x0bc", "d"]]],
    ]


def test_errors_name_the_line():
    assert parse('a\n"x\ny', 'a\n\n1,"b" c\n', '"a"b', '"x\ny"\n"z" ,1', 'ok,1\n"two\nlines",2\n\n"open,3\n', '"never', 'a\n,"', '"x""') == [
        ["FormatError", 2],
        ["FormatError", 3],
        ["FormatError", 1],
        ["FormatError", 3],
        ["FormatError", 5],
        ["FormatError", 1],
        ["FormatError", 2],
        ["FormatError", 1],
    ]


def test_command_line():
    files = {"in.csv": 'name,text\n1,"say ""hi"",\nnow"\n2,\n'}
    done = run("python3", "-m", "tabtool", "json", "in.csv", files=files)
    assert (done.exit_code, done.stdout) == (0, '{"name": "1", "text": "say \\"hi\\",\\nnow"}\n{"name": "2", "text": ""}\n')
    bad = run("python3", "-m", "tabtool", "columns", "in.csv", files={"in.csv": 'a\n"b'})
    assert bad.exit_code == 2
    assert bad.stderr.startswith("tabtool: in.csv: line 2: ")
    total = run("python3", "-m", "tabtool", "total", "price", "samples/stock.csv")
    assert (total.exit_code, total.stdout) == (0, "1349\n")
