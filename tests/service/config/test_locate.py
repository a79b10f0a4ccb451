"""The locator finds the line of every key, even in misleading texts."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from imp_service.config.parse import statements

TRICKY = '''\
top = 1  # not = this
"quoted key" . sub = """
fake = 1
[fake]
""" # end
[a . "b.c"]
list = [ 1, # ] = 2
  "]", 'x = [',
  { in_list = 1 }]
inline = { one = 1, two = { three = "}" , four = [1, 2] }, five.six = 7 }
literal = \'\'\'
it''s = 1\'\'\'
  [[array]]
after = "\\"= [" #
[last]
'''


def test_cfg_3_the_locator_finds_every_key_of_a_misleading_text():
    tomllib.loads(TRICKY)
    assert list(statements(TRICKY)) == [
        (("top",), 1),
        (("quoted key", "sub"), 2),
        (("a", "b.c"), 6),
        (("a", "b.c", "list"), 7),
        (("a", "b.c", "inline"), 10),
        (("a", "b.c", "inline", "one"), 10),
        (("a", "b.c", "inline", "two"), 10),
        (("a", "b.c", "inline", "two", "three"), 10),
        (("a", "b.c", "inline", "two", "four"), 10),
        (("a", "b.c", "inline", "five", "six"), 10),
        (("a", "b.c", "literal"), 11),
        (("array",), 13),
        (("array", "after"), 14),
        (("last",), 15),
    ]


VALUES = st.sampled_from(
    [
        "1",
        '"# ["',
        "'= {'",
        "[\n1,\n'],',\n]",
        '"""\nx = 1\n"""',
        "'''\n[t]\n'''",
        "[ # ]\n]",
        "true # = 3",
        "{ z = 1 }",
    ]
)


@given(st.lists(st.tuples(st.booleans(), VALUES, st.integers(0, 2)), max_size=12))
def test_cfg_3_the_locator_agrees_with_the_writer(parts: list[tuple[bool, str, int]]):
    """The text is written line by line, so the line of each key is known."""
    text, table, expected = "", (), {}
    for number, (opens_table, value, blank) in enumerate(parts):
        text += "\n" * blank
        line = text.count("\n") + 1
        if opens_table:
            table = (f"t{number}",)
            expected[table] = line
            text += f"[t{number}]\n"
        else:
            expected[(*table, f"k{number}")] = line
            text += f"  k{number} = {value}\n"
    tomllib.loads(text)
    found = {path: line for path, line in statements(text) if path[-1] != "z"}
    assert found == expected


@given(st.text("=[]{}\"'#.\\\n ab1"))
def test_cfg_3_the_locator_ends_on_any_text(text: str):
    last = text.count("\n") + 1
    assert all(1 <= line <= last for _, line in statements(text))
