"""The GBNF parser: the nodes of every construct, and errors with their offset."""

from __future__ import annotations

import pytest

from imp_service.text.constraints.gbnf_parser import (
    Alternation,
    Characters,
    Node,
    Repeat,
    RuleReference,
    Sequence,
    parse_gbnf,
)
from imp_service.text.errors import FieldInvalid
from imp_service.text.limits import TextLimits

LIMITS = TextLimits(nesting=3, repeat=20)
ANY = Characters(r"[\s\S]")
A, B, C = (Characters(f"[\\x{{{ord(char):X}}}]") for char in "abc")


def parsed(source: str) -> dict[str, Node]:
    return parse_gbnf(source, "constraint.gbnf", LIMITS)


NODES: dict[str, Node] = {
    '"a"': A,
    '"abc"': Sequence((A, B, C)),
    '""': Sequence(()),
    "": Sequence(()),
    '"a" "b"': Sequence((A, B)),
    '"a" | "b" | "c"': Alternation((A, B, C)),
    '"a" |': Alternation((A, Sequence(()))),
    '| "a"': Alternation((Sequence(()), A)),
    '"a" |\n "b"': Alternation((A, B)),
    '("a" "b") "c"': Sequence((Sequence((A, B)), C)),
    '("a"\n|\r\n"b"\n)*': Repeat(Alternation((A, B)), 0, None),
    '(("a"))': A,
    ".": ANY,
    "a-b_9": RuleReference("a-b_9", 9),
    '"a"*': Repeat(A, 0, None),
    '"a"+': Repeat(A, 1, None),
    '"a"?': Repeat(A, 0, 1),
    '"a" *': Repeat(A, 0, None),
    '"a"*?': Repeat(Repeat(A, 0, None), 0, 1),
    '"a"{3}': Repeat(A, 3, 3),
    '"a"{0}': Repeat(A, 0, 0),
    '"a"{2,}': Repeat(A, 2, None),
    '"a"{2,20}': Repeat(A, 2, 20),
    '"a"{ 2 , 2 }': Repeat(A, 2, 2),
    '"ab"{2}': Repeat(Sequence((A, B)), 2, 2),
    '"a" # "b"\n': A,
    '("a" # one\n"b")': Sequence((A, B)),
    "[abc]": Characters(r"[\x{61}\x{62}\x{63}]"),
    "[a-c]": Characters(r"[\x{61}-\x{63}]"),
    "[a-a]": Characters(r"[\x{61}-\x{61}]"),
    "[^a-cx]": Characters(r"[^\x{61}-\x{63}\x{78}]"),
    "[a-]": Characters(r"[\x{61}\x{2D}]"),
    "[-a]": Characters(r"[\x{2D}\x{61}]"),
    "[a^]": Characters(r"[\x{61}\x{5E}]"),
    "[^]": ANY,
    "[\n]": Characters(r"[\x{A}]"),
    r"[\]\[-]": Characters(r"[\x{5D}\x{5B}\x{2D}]"),
    r"[\x41-\x5A]": Characters(r"[\x{41}-\x{5A}]"),
    r'"\n\r\t\"\\\[\]"': Sequence(tuple(Characters(f"[\\x{{{ord(char):X}}}]") for char in '\n\r\t"\\[]')),
    r'"\x61"': A,
    r'"\u0061"': A,
    r'"\U00000061"': A,
    r'"\U0010FFFF"': Characters(r"[\x{10FFFF}]"),
    r'"\uD7FF"': Characters(r"[\x{D7FF}]"),
    r'"\uE000"': Characters(r"[\x{E000}]"),
    r'"\x610"': Sequence((A, Characters(r"[\x{30}]"))),
    '"é"': Characters(r"[\x{E9}]"),
}


@pytest.mark.parametrize("source", NODES)
def test_txt_23_each_construct_is_read(source: str) -> None:
    assert parsed(f"root ::= {source}") == {"root": NODES[source]}


def test_txt_23_rules_stand_below_each_other() -> None:
    text = '# head\n\n root\t::=\n  "a" x\r\nx ::= "b"\n\n\ny::="c"# end'
    assert parsed(text) == {"root": Sequence((A, RuleReference("x", text.index("x")))), "x": B, "y": C}
    assert parsed("") == parsed("# nothing") == {}


def test_txt_23_depth_repeats_and_rules_reach_their_limits() -> None:
    assert parsed('root ::= ((("a")))((("b")))') == {"root": Sequence((A, B))}
    assert parsed('root ::= "a"{20}') == {"root": Repeat(A, 20, 20)}
    rules = [f'r{i} ::= "a"' for i in range(1024)]
    assert len(parsed("\n".join(rules))) == 1024
    with pytest.raises(FieldInvalid, match="more than 1024 rules"):
        parsed("\n".join([*rules, 'more ::= "a"']))


WRONG = {
    "root": "offset 4: expected '::='",
    "root := x": "offset 5: expected '::='",
    "::= x": "offset 0: expected a rule's name",
    "é ::= x": "offset 0: expected a rule's name",
    'root ::= "a"\nroot ::= "b"': "offset 13: rule 'root' twice",
    "root ::= )": "offset 9: unexpected ')'",
    'root ::= "a" )': "offset 13: unexpected ')'",
    'root ::= ("a"': "offset 13: expected ')'",
    'root ::= (((("a"))))': "offset 12: nested more than 3 deep",
    'root ::= "a': "offset 9: the string is not closed",
    'root ::= "a\n"': "offset 9: the string is not closed",
    "root ::= x [a": "offset 11: the class is not closed",
    "root ::= [a-": "offset 9: the class is not closed",
    "root ::= []": "offset 9: the class is empty",
    "root ::= [b-a]": "offset 13: the range runs backwards",
    "root ::= *": "offset 9: expected a rule's name",
    "root ::= =": "offset 9: expected a rule's name",
    r'root ::= "\q"': r"offset 10: unknown escape \q",
    r'root ::= "\x6"': r"offset 10: unknown escape \x",
    r'root ::= "\u00g0"': r"offset 10: unknown escape \u",
    r'root ::= "\uD800"': "offset 12: U+D800 is no character",
    r'root ::= "\uDFFF"': "offset 12: U+DFFF is no character",
    r'root ::= "\U00110000"': "offset 12: U+110000 is no character",
    'root ::= "a"{': "offset 12: bad repeat",
    'root ::= "a"{}': "offset 12: bad repeat",
    'root ::= "a"{,2}': "offset 12: bad repeat",
    'root ::= "a"{1,2,3}': "offset 12: bad repeat",
    'root ::= "a"{x}': "offset 12: bad repeat",
    'root ::= "a"{1,x}': "offset 12: bad repeat",
    'root ::= "a"{-1}': "offset 12: bad repeat",
    'root ::= "a"{٣}': "offset 12: bad repeat",
    'root ::= "a"{3,2}': "offset 12: bad repeat: the upper bound is below the lower bound",
    'root ::= "a"{21}': "offset 12: repeat beyond the limit of 20",
    'root ::= "a"{1,21}': "offset 12: repeat beyond the limit of 20",
    'root ::= "a"{0000000001}': "offset 12: repeat beyond the limit of 20",
}


@pytest.mark.parametrize("source", WRONG)
def test_txt_23_what_is_wrong_is_reported_with_its_place(source: str) -> None:
    with pytest.raises(FieldInvalid) as caught:
        parsed(source)
    assert (caught.value.path, caught.value.message) == ("constraint.gbnf", WRONG[source])


def test_txt_23_a_long_name_is_cut_in_an_error() -> None:
    name = "n" * 65
    with pytest.raises(FieldInvalid) as caught:
        parsed(f'{name} ::= "a"\n{name} ::= "a"')
    assert caught.value.message == f"offset 74: rule '{'n' * 64}' twice"
