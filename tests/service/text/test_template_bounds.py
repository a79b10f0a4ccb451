"""Hostile chat templates end with an error at load, or with TEMPLATE_FAILED."""

from __future__ import annotations

import tracemalloc

import pytest

from imp_service.text import ChatMessage, ChatPrompt, ChatTemplate, TemplateFailed, TemplateInvalid, TextLimits

CHAT = ChatPrompt((ChatMessage("user", "hello"), ChatMessage("assistant", "x")))


def _render(source: str, limits: TextLimits | None = None) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}, limits=limits).render(CHAT).text


def _failure(source: str, limits: TextLimits | None = None) -> str:
    with pytest.raises((TemplateFailed, TemplateInvalid)) as caught:
        _render(source, limits)
    assert caught.value.reason in ("TEMPLATE_FAILED", "TEMPLATE_INVALID")
    return caught.value.message


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ ''.__class__ }}",
        "{{ ''['__class__'] }}",
        "{{ messages['__class__'] }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ lipsum.__globals__ }}",
        "{{ joiner.__init__ }}",
        "{{ self.__init__ }}",
        "{{ self._TemplateReference__context }}",
        "{{ range.__globals__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__closure__ }}",
        "{{ namespace.__init__ }}",
        "{{ messages|map(attribute='__class__')|list }}",
        "{{ messages|map(attribute='content.__class__')|list }}",
        "{% macro f() %}{% endmacro %}{{ f._func }}",
        "{% for m in messages %}{{ loop._iterable }}{% endfor %}",
        "{{ bos_token.of_runs('<s>', []) }}",
        "{{ bos_token._runs }}",
        "{{ bos_token.trusted('<s>') }}",
        "{{ bos_token.spans() }}",
        "{{ (1).to_bytes(10**9) }}",
        "{{ dict.fromkeys('ab') }}",
        "{{ range }}",
        "{{ messages|attr('append') }}",
        "{{ ''.encode().decode }}",
    ],
)
def test_t20_txt_18_no_python_object_is_reached(source: str) -> None:
    _failure(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''|attr('format') }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ '{0[0]}'['format']('a') }}",
        "{{ '{x.y}'.format(x=messages[0]) }}",
        "{{ '{!r}'.format('a') }}",
        "{{ '{:{}}'.format(1, 2) }}",
        "{{ '{:%A}'.format(1) }}",
        "{{ '{}'.format(range) }}",
        "{{ '{'.format(1) }}",
        "{{ '{}{}'.format(1) }}",
        "{{ '{a}'.format(1) }}",
        "{% set f = '{0.__class__}'.format %}{{ f(1) }}",
        "{{ '{0.__class__}'.format_map(messages[0]) }}",
        "{{ ['{0.__class__}']|map('format', 1)|map(attribute='format')|list|first }}",
        "{{ (bos_token ~ '{}').format }}",
    ],
)
def test_t21_format_reaches_neither_attributes_nor_items(source: str) -> None:
    _failure(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ '{:257}'.format(1) }}",
        "{{ '{:.257f}'.format(1.5) }}",
        "{{ '{:>99999999999}'.format('a') }}",
        "{% set a = 'x' * 99999 %}{{ ('{0}' * 99).format(a) }}",
    ],
)
def test_t22_a_format_makes_nothing_wide(source: str) -> None:
    _failure(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ '[1' | from_json }}",
        "{{ 'NaN' | from_json }}",
        '{{ \'{"a": 1, "a": 2}\' | from_json }}',
        "{{ ('[' * 33 ~ ']' * 33) | from_json }}",
        "{{ 1 | from_json }}",
        "{{ none | from_json }}",
    ],
)
def test_t22_json_that_a_template_reads_is_bounded(source: str) -> None:
    _failure(source)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(10**9) %}{% endfor %}",
        "{{ range(10**9)|list }}",
        "{{ 'a' * 10**9 }}",
        "{{ [1] * 10**9 }}",
        "{{ 2 ** (10**8) }}",
        "{{ 10**9 * 'ab' }}",
        "".join(f"{{% for i{n} in range(99999) %}}" for n in range(8)) + "x" + "{% endfor %}" * 8,
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a }}",
        "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
        "{% set ns = namespace(a={}) %}{% for i in range(60) %}{% set ns.a = {'x': ns.a, 'y': ns.a} %}{% endfor %}",
        "{% set ns = namespace(a=1) %}{% for i in range(60) %}{% set ns.a = (ns.a, ns.a) %}{% endfor %}{{ ns.a == 3 }}",
        "{% set ns = namespace(a=1) %}{% for i in range(60) %}{% set ns.a = dict(x=ns.a, y=ns.a) %}{% endfor %}",
        "{% set ns = namespace(a=7) %}{% for i in range(60) %}{% set ns.a = ns.a * ns.a %}{% endfor %}",
        "{% set ns = namespace(a='ab') %}{% for i in range(60) %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}",
        "{% set ns = namespace(a='ab') %}{% for i in range(60) %}{% set ns.a = ns.a.replace('a', ns.a) %}{% endfor %}",
        "{% set ns = namespace(a='ab') %}{% for i in range(60) %}{% set ns.a = ns.a|replace('', ns.a) %}{% endfor %}",
        "{% set ns = namespace(a='ab') %}{% for i in range(60) %}{% set ns.a = ns.a|join(ns.a) %}{% endfor %}",
        "{% set ns = namespace(a='ab') %}{% for i in range(60) %}{% set ns.a = '%s%s' % (ns.a, ns.a) %}{% endfor %}",
        "{% set ns = namespace(a='ab') %}{% for i in range(60) %}{% set ns.a %}{{ ns.a }}{{ ns.a }}{% endset %}"
        "{% endfor %}",
        "{% set b = 'x' * 99999 %}{% set ns = namespace(a=[]) %}{% for i in range(9999) %}"
        "{% set ns.a = ns.a + [b ~ i] %}{% endfor %}",
        "{% set b = 'x' * 99999 %}{% set y %}{% for i in range(9999) %}{{ b ~ i }}{% endfor %}{% endset %}",
        "{% set b = 'x' * 99999 %}{% for i in range(99999) %}{{ b|upper|length }}{% endfor %}",
        "{{ ('a\n' * 9999)|indent(10**9) }}",
        "{{ messages|tojson(indent=10**9) }}",
        "{{ '%*d' % (10**9, 1) }}{{ '%1000000000d' % 1 }}",
        "{{ '%(a)s%(a)s%(a)s' % {'a': 'x' * 999999} }}",
        "{{ strftime_now('%0999999999d') }}",
        "{{ 'x'.ljust(10**9) }}{{ 'x'.center(10**9) }}{{ 'x'.zfill(10**9) }}",
        "{{ 'x'|center(10**9) }}",
        "{{ [1]|batch(10**9, 0)|list }}",
        "{{ ('x ' * 99999)|wordwrap(1) }}",
        "{{ range(99999)|map('string')|list|map('upper')|list|map('lower')|list|map('upper')|list|map('lower')|list"
        "|map('upper')|list }}",
        "{{ namespace(a=messages) }}",
        "{{ ((((((((((10**99)**9)**9)**9)**9)**9)**9)**9)**9)**9) }}",
    ],
)
def test_t22_txt_18_a_template_that_builds_large_values_is_stopped(source: str) -> None:
    _failure(source)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("source", "limit"),
    [
        ("{{ range(10**9)|list }}", 16 << 20),
        ("{{ 'a' * 10**9 }}", 16 << 20),
        ("{{ 2**(10**8) }}", 16 << 20),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", 16 << 20),
        ("{% set b = 'x' * 99999 %}{% set y %}{% for i in range(9999) %}{{ b ~ i }}{% endfor %}{% endset %}", 16 << 20),
        ("{% set a = 'x' * 9999 %}{% for i in range(99999) %}{{ a }}{% endfor %}", 16 << 20),
        ("{% set x = 'x' * 99999 %}{% for i in range(99999) %}{{ x|upper|length }}{% endfor %}", 16 << 20),
        (
            "{% set ns = namespace(a=[]) %}{% for i in range(99) %}{% set ns.a = ns.a + ['x' * 999999] %}{% endfor %}",
            32 << 20,
        ),
    ],
)
def test_t22_memory_stays_small(source: str, limit: int) -> None:
    tracemalloc.start()
    try:
        _failure(source)
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def test_t22_processor_time_is_bounded_where_iterations_are_dear() -> None:
    source = "{% set b = 'x' * 1000000 %}{% for i in range(99999) %}{% if (b ~ '') == b ~ 'y' %}{% endif %}{% endfor %}"
    assert "values of more than" in _failure(source)
    source = "{% set b = 'x' * 1000000 %}{% for i in range(99999) %}{% if 'xy' in b %}{% endif %}{% endfor %}"
    assert "more than 50 ms" in _failure(source, TextLimits(template_ms=50))


def test_t23_rendered_text_is_bounded() -> None:
    assert "4194304" in _failure("{% for i in range(9) %}{{ 'x' * 500000 }}{% endfor %}")
    assert len(_render("{% for i in range(8) %}{{ 'x' * 500000 }}{% endfor %}")) == 4_000_000


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x" * (2**20 + 1), "limit 1048576"),
        ("a\nb{% if %}", "line 2"),
        ("\n\n{{ messages|nope }}", "line 3: No filter named 'nope'"),
        ("{{ x is nope }}", "line 1: No test named 'nope'"),
        ("{% include 'x' %}", "include"),
        ("{% import 'x' as y %}", "import"),
        ("{% from 'x' import y %}", "import"),
        ("{% extends 'x' %}", "extends"),
        ("{% block b %}{% endblock %}", "block"),
        ("{% do messages.append(1) %}", "line 1"),
        ("{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}", "recursive"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "cannot be compiled"),
        ("{% for a in b %}" * 300 + "{% endfor %}" * 300, "cannot be compiled"),
    ],
)
def test_t24_txt_18_what_cannot_be_compiled_is_refused_at_load(source: str, said: str) -> None:
    with pytest.raises(TemplateInvalid) as caught:
        ChatTemplate(source, {})
    assert caught.value.path == "tokenizer.chat_template"
    assert said in caught.value.message


@pytest.mark.parametrize(
    "source",
    ["{{ ('[' ~ '1,' * 500 ~ '1]') | from_json }}", "{% set a = 'x' * 90 %}{{ ('{0}' * 12).format(a) }}"],
)
def test_t22_json_and_formats_keep_to_the_bound_of_values(source: str) -> None:
    _render(source)
    said = _failure(source, TextLimits(template_operand_bytes=1000))
    assert "limit 1000" in said or said == "from_json: not JSON that a template may read"


def test_t24_txt_18_an_unknown_name_in_a_condition_is_a_warning_and_fails_where_it_runs() -> None:
    source = "{% if x %}\n{{ 'a' | nope }}{% elif 1 is never %}{% endif %}{{ 'b' if not x else 1 is unheard }}"
    template = ChatTemplate(source, {}, key="k")
    assert template.warnings == (
        "k: no filter named 'nope' (line 2)",
        "k: no test named 'never' (line 2)",
        "k: no test named 'unheard' (line 2)",
    )
    assert "No test named 'never'" in _failure("{% if 1 is never %}{% endif %}")
    calm = ChatTemplate("{% if x %}{{ 'a' | nope }}{% endif %}b", {})
    assert calm.render(CHAT).text == "b"
    assert "No filter named 'nope'" in _failure("{% if true %}{{ 'a' | nope }}{% endif %}")
    assert ChatTemplate("{{ 'a' | upper }}", {}).warnings == ()


def test_t25_the_template_s_own_words_cut_and_escaped() -> None:
    assert _failure("{{ raise_exception('roles must alternate') }}") == "roles must alternate"
    assert _failure("{{ raise_exception('a\nb\x1b[0m\u202e') }}") == "a\\nb\\x1b[0m\\u202e"
    assert _failure("{{ raise_exception('é' * 300) }}") == "é" * 100


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.append(1) }}",
        "{{ messages.clear() }}",
        "{{ messages[0].update({'content': 'y'}) }}",
        "{{ messages[0].pop('content') }}",
        "{% set messages[0].content = 'y' %}",
        "{% macro f(x=[]) %}{{ x.append(1) }}{{ x|length }}{% endmacro %}{{ f() }}",
        "{{ dict.x.append(1) }}",
        "{{ messages.sort() }}",
    ],
)
def test_t26_nothing_is_changed_between_renders(source: str) -> None:
    _failure(source)
    template = ChatTemplate(
        "{% set range = 1 %}{% set messages = [] %}{% set bos_token = 'q' %}{{ range }}", {"bos_token": "b"}
    )
    assert template.render(CHAT).text == template.render(CHAT).text == "1"


def test_g6_no_text_of_a_message_is_in_an_error() -> None:
    secret = ChatPrompt((ChatMessage("user", "s3cret"),))
    for source in (
        "{{ messages[0].content|int + messages }}",
        "{{ messages[0][messages[0].content].x }}",
    ):
        with pytest.raises(TemplateFailed) as caught:
            ChatTemplate(source, {}).render(secret)
        assert "s3cret" not in caught.value.message
