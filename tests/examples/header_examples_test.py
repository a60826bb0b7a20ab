"""What counts as an example in a header, and that a lost one is noticed."""
import header_examples
import pytest

HEADER = """\
// Losses.
//
//   score(y) = Σ_t emissions[t, y_t]
//
//   int x = 1;  // a remark
//   if (x == 1)
//     x = 2;
// More words; not an example.
//   first   a table
//   second  its other row; with a remark
struct S {
  //   S s;
};
"""


def test_statements_make_an_example():
    assert header_examples.examples(HEADER) == [(5, ["int x = 1;  // a remark", "if (x == 1)", "  x = 2;"]), (12, ["S s;"])]


def test_errors_are_reported_where_the_example_is(tmp_path):
    made = header_examples.source(tmp_path / "loss.h", [(5, ["int x = 1;"])])
    assert f'#line 5 "{tmp_path}/loss.h"\nint x = 1;\n}}' in made


def test_a_lost_example_is_an_error(tmp_path):
    (tmp_path / "loss.h").write_text("// Losses.\n//\n//   int x = 1\n")
    with pytest.raises(SystemExit, match="no example in C\\+\\+ was found in loss.h"):
        header_examples.main(tmp_path, tmp_path / "loss.h")
