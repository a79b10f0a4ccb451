"""The template language equals the library's: where our bounds and marks replace parts, the text is the same."""

from __future__ import annotations

import pytest

from imp_service.text import ChatMessage, ChatPrompt, ChatTemplate, RenderedChat, TemplateFailed
from support.run.growth import LINEAR, growth
from support.text.plain_template import plain_render

CHAT = ChatPrompt((ChatMessage("user", " Hi <b> & 'you' "), ChatMessage("assistant", "Hello\n\nworld")))
MESSAGES = [{"role": message.role, "content": message.content} for message in CHAT.messages]
SPECIALS = {"bos_token": "<s>", "eos_token": "</s>"}


def rendered(source: str) -> RenderedChat:
    return ChatTemplate(source, SPECIALS).render(CHAT)


SAME = [
    # operators
    "{{ 7 + 3 }}{{ 7 - 3 }}{{ 7 * 3 }}{{ 7 // 3 }}{{ 7 / 4 }}{{ 7 % 4 }}{{ 2 ** 5 }}{{ 2 ** -1 }}{{ 2.5 * 2 }}",
    "{{ 'a' + 'b' }}{{ [1] + [2, 3] }}{{ 'a' ~ 1 ~ none ~ true }}{{ (1, 2) + (3,) }}",
    "{{ 'ab' * 3 }}|{{ 3 * 'ab' }}|{{ 'ab' * 0 }}|{{ 'ab' * -2 }}|{{ [1, 2] * 2 }}|{{ 2 * (1, 2) }}|{{ [1] * -1 }}",
    "{{ '%s and %d' % ('a', 7) }}{{ '%5.2f|%-4s|' % (1.5, 'x') }}{{ '%(a)s' % {'a': 1} }}",
    "{{ '%s' % 'one' }}{{ '%%' % () }}",
    "{% set j = joiner(', ') %}{% for m in messages %}{{ j() }}{{ m.role }}{% endfor %}{{ joiner()() }}",
    "{% set c = cycler('a', 'b') %}{% for m in messages %}{{ c.next() }}{{ c.current }}{% endfor %}{{ c.reset() }}",
    "{{ '%s' % [1] }}{{ 10 % 4 }}{{ 10.5 % 4 }}{{ '%999d' % 1 }}",
    "{{ 1 < 2 }}{{ 'b' in 'abc' }}{{ 4 not in [1] }}{{ 1 if false else 2 }}{{ not true or none is none }}",
    # methods of strings
    "{{ ' a '.strip() }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xax'.lstrip('x') }}",
    "{{ 'xax'.rstrip('x') }}{{ 'abab'.replace('a', 'cc') }}",
    "{{ 'abab'.replace('a', 'c', 1) }}{{ 'ab'.replace('', '-') }}",
    "{{ ', '.join(['a', 'b', 'c']) }}|{{ ''.join(['a', 'b']) }}|{{ '-'.join('abc') }}|{{ '-'.join([]) }}",
    "{{ 'a b'.title() }}{{ 'Ab'.swapcase() }}{{ 'ab'.upper() }}",
    "{{ 'AB'.lower() }}{{ 'ß'.casefold() }}{{ 'ab'.capitalize() }}",
    "{{ 'abcabc'.find('c') }}{{ 'abcabc'.rfind('c') }}{{ 'abc'.index('b') }}",
    "{{ 'abab'.count('a') }}{{ 'abc'.rindex('c') }}",
    "{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith('ab') }}{{ '12'.isdigit() }}{{ 'a1'.isalnum() }}{{ ''.isspace() }}",
    "{{ 'a,b,c'.split(',') }}{{ 'a,b,c'.split(',', 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ 'a b  c'.split() }}",
    "{{ 'a=b=c'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}{{ 'a\nb\n'.splitlines() }}{{ 'a\nb'.splitlines(true) }}",
    "{{ 'prefix'.removeprefix('pre') }}{{ 'prefix'.removesuffix('fix') }}{{ messages[0].content.split('<b>')[1] }}",
    # filters
    "{{ messages | map(attribute='role') | join(', ') }}{{ messages | join('-', attribute='role') }}",
    "{{ [1, none] | join }}",
    "{{ 'aXa' | replace('a', 'b') }}{{ 'aaa' | replace('a', 'b', 2) }}",
    "{{ 'aaa' | replace('a', 'b', 0) }}{{ 121 | replace(1, 3) }}",
    "{{ '  a ' | trim }}|{{ 'xxaxx' | trim('x') }}|{{ 5 | string }}|{{ none | string }}|{{ '%s-%s' | format('a', 2) }}",
    "{{ messages[0].content | e }}|{{ '\"' | escape }}|{{ 5 | e }}",
    "{{ 'a\nb\n\nc' | indent }}{{ 'a\nb' | indent(2) }}",
    "{{ 'a\nb' | indent(2, true) }}{{ 'a\n\nb' | indent(1, false, true) }}",
    "{{ 'a\nb' | indent('> ') }}|{{ 'a\n\nb' | indent(1, first=true, blank=true) }}|{{ '' | indent(3, true) }}",
    "{{ {'a': [1, 'ä', none, true, 1.5]} | tojson }}{{ [1, 2] | tojson(indent=2) }}",
    "{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}",
    "{{ [1, {'a': 2}] | tojson(separators=(',', ':')) }}|{{ 'ä<' | tojson }}|{{ 'ä' | tojson(ensure_ascii=true) }}",
    "{{ [3, 1, 2] | sort }}{{ [3, 1, 2] | sort(reverse=true) }}{{ [1, 2, 3] | first }}",
    "{{ [1, 2, 3] | last }}{{ [1, 2] | length }}",
    "{{ [1, 2, 3] | sum }}{{ [1, 5, 3] | max }}{{ [4, 2] | min }}{{ -3 | abs }}{{ '7' | int + 1 }}{{ '1.5' | float }}",
    "{{ 2.567 | round(1) }}{{ 'ab' | upper }}{{ 'AB' | lower }}",
    "{{ 'a b' | title }}{{ 'ab' | capitalize }}{{ 'a b' | wordcount }}",
    "{{ none | default('x') }}{{ unset | default('x') }}{{ '' | d('x', true) }}{{ {'b': 1, 'a': 2} | dictsort }}",
    "{{ [1, 2, 3, 4] | select('even') | list }}{{ [1, 2, 3] | reject('odd') | list }}{{ {'a': 1} | items | list }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | rejectattr('role') | list }}",
    "{{ [1, 1, 2] | unique | list }}{{ [1, 2] | reverse | list }}{{ 'ab' | reverse }}{{ 'a long text' | truncate(5) }}",
    "{% for role, group in messages | groupby('role') %}{{ role }}{{ group | length }}{% endfor %}{{ 'abc' | list }}",
    # calls, loops, variables
    "{{ range(3) | list }}{{ range(1, 7, 2) | list }}{{ dict(a=1) }}",
    "{{ {'a': 1}.get('b', 2) }}{{ {'a': 1}.items() | list }}",
    "{% macro f(a, b='x') %}[{{ a }}{{ b }}]{% endmacro %}{{ f(1) }}{{ f(1, b=2) | length }}",
    "{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}in{% endcall %}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "{% for m in messages %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for m in [] %}{{ m }}{% else %}none{% endfor %}",
    "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }}{% break %}{% endfor %}",
    "{{ messages[0]['role'] }}",
    "{% set x %}a{{ 1 }}{% endset %}{{ x }}{{ x | length }}{% filter upper %}ab{% endfilter %}",
    "{{ messages[1:] | length }}",
    "{{ 'abc'[1] }}{{ 'abc'[::-1] }}{{ 'abc'[:2] }}{{ messages[-1].content[-5:] }}{{ messages[0].content is string }}",
    "  {% if true %}\n  a\n  {%- endif %}\n{{ 1 -}}\n b\n",
]  # fmt: skip


@pytest.mark.few(27)
@pytest.mark.parametrize("source", SAME)
def test_txt_18_replaced_operations_write_what_jinja_writes(source: str) -> None:
    assert rendered(source).text == plain_render(source, {**SPECIALS, "messages": MESSAGES})


def test_a_generation_block_has_a_scope_of_its_own() -> None:
    source = "{% set x = 'o' %}{% generation %}{% set x = 'i' %}{{ x }}{% endgeneration %}{{ x }}"
    assert rendered(source).text == "io"


SENT = "messages[0].content"


@pytest.mark.parametrize(
    ("source", "trusted"),
    [
        ("{{ TEXT + 'a' }}", ["a"]),
        ("{{ 'a' ~ TEXT }}", ["a"]),
        ("{{ ['a', TEXT] | join('b') }}", ["ab"]),
        ("{{ 'b'.join(['a', TEXT]) }}", ["ab"]),
        ("{{ TEXT * 2 }}", []),
        ("{{ 'a' * 2 }}{{ TEXT }}", ["aa"]),
        ("{{ '%s' % TEXT }}", []),
        ("{{ '%s' % 'a' }}", ["a"]),
        ("{{ 'a' | upper }}{{ TEXT | upper }}", ["A"]),
        ("{{ 'a'.upper() }}{{ TEXT.upper() }}", ["A"]),
        ("{{ '<%s>' % TEXT }}", ["<", ">"]),
        ("{{ '<%s-%5s>%%' | format(TEXT, 'a') }}", ["<", "-", ">%"]),
        ("{{ '<%(a)s>' % {'a': TEXT} }}", ["<", ">"]),
        ("{{ ('a' ~ TEXT ~ 'b')[:-1] }}{{ ('a' ~ TEXT)[0] }}{{ ('a' ~ TEXT)[::-1] }}", ["a", "a"]),
        ("{{ 'aXb'.replace('X', TEXT) }}", ["a", "b"]),
        ("{{ ('<a>' ~ TEXT ~ '<b>').replace('<b>', '<c>') }}", ["<a>", "<c>"]),
        ("{{ ('<a>|' ~ TEXT).split('|') | join('+') }}", ["<a>+"]),
        ("{{ ('<a>|' ~ TEXT).partition('|') | join }}", ["<a>|"]),
        ("{{ ('<a>' ~ TEXT).removeprefix('<') }}", ["a>"]),
        ("{{ TEXT.replace('H', 'a') }}", []),
        ("{{ 'aXb'.replace('X', '-') }}", ["a-b"]),
        ("{{ 'a-b'.split('-')[0] }}{{ TEXT.split('i')[0] }}", ["a"]),
        ("{{ ' a ' | trim }}{{ TEXT | trim }}", ["a"]),
        ("{{ ' a '.strip() }}{{ TEXT.strip() }}", ["a"]),
        ("{{ 'a\nb' | indent(TEXT) }}", ["a\n", "b"]),
        ("{{ ('<a>\n' ~ TEXT) | indent(2) }}", ["<a>\n"]),
        ("{{ '{}'.format(TEXT) }}{{ '{}b'.format('a') }}", ["ab"]),
        ("{{ 1 }}{{ [1] | tojson }}", []),
    ],
)
def test_txt_17_what_the_template_wrote_is_trusted_and_nothing_else(source: str, trusted: list[str]) -> None:
    spans = rendered(source.replace("TEXT", SENT)).spans
    assert [span.text for span in spans if span.parses_special_tokens] == trusted


@pytest.mark.parametrize(
    "operation",
    [
        "text.replace('\n', '-')",
        "text.split('\n') | length",
        "text | indent(2)",
        "text.partition('x') | length",
        "(text | replace('{', '%%')) % ()",
    ],
)
def test_txt_17_the_time_of_an_operation_is_linear_in_the_changes_of_origin(operation: str) -> None:
    # One operation cannot be interrupted, and with a pass over the text for each part it would take minutes.
    chat = ChatPrompt((ChatMessage("user", "\n"),))

    def render(n: int) -> None:
        source = f"{{% set text = (['{{' ~ messages[0].content] * {n}) | join %}}{{{{ {operation} }}}}"
        assert ChatTemplate(source, SPECIALS).render(chat).text

    assert growth(render, 100) < LINEAR


@pytest.mark.parametrize(
    ("allowed", "refused"),
    [
        ("{{ 2 ** 2048 > 0 }}", "{{ 2 ** 2049 > 0 }}"),
        ("{{ (2 ** 2000) * (2 ** 2000) > 0 }}", "{{ (2 ** 2048) * (2 ** 2048) > 0 }}"),
        ("{{ [1] | tojson(indent=16) }}", "{{ [1] | tojson(indent=17) }}"),
        ("{{ [1] | tojson(indent=0) }}", "{{ [1] | tojson(indent=-1) }}"),
        ("{{ range(100000) | length }}", "{{ range(100001) | length }}"),
        ("{{ ('[' * 32 ~ ']' * 32) | from_json }}", "{{ ('[' * 33 ~ ']' * 33) | from_json }}"),
        ("{{ '{:256}{:.256f}'.format(1, 1.5) }}", "{{ '{:257}'.format(1) }}"),
        ("{{ '%999d' % 1 }}", "{{ '%1000d' % 1 }}"),
        ("{{ strftime_now('%d %b') }}", "{{ strftime_now('%9d') }}"),
        ("{{ '%s' | format(1) }}", "{{ '%(a)s' | format(a=1) }}"),
        ("{{ '7' | from_json + 1 }}", "{{ 7 | from_json }}"),
        ("{{ 'a'.upper() }}", "{{ 'a'.center(3) }}"),
        ("{{ [1].index(1) }}", "{{ [1].append(2) }}"),
        ("{{ {'a': 1}.keys() | list }}", "{{ {'a': 1}.pop('a') }}"),
        ("{{ 'x' is string }}", "{{ raise_exception('no') }}"),
        ("{{ '{}'.format(1) }}", "{{ '{}{}'.format(1) }}"),
        ("{{ '{a}'.format(a=1) }}", "{{ '{b}'.format(a=1) }}"),
        ("{{ '{:d}'.format(1) }}", "{{ '{:d}'.format('a') }}"),
        ("{{ '{0}'.format(1) }}", "{{ '{0!r}'.format(1) }}"),
    ],
)
def test_t22_what_stands_at_a_bound_is_written_and_what_is_beyond_is_refused(allowed: str, refused: str) -> None:
    assert rendered(allowed).text
    with pytest.raises(TemplateFailed):
        rendered(refused)
