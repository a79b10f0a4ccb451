"""Our own chat templates that frame reasoning and tool calls as published families do, and the tokens they need."""

from __future__ import annotations

from support.text.family_templates import FAMILIES
from support.text.tiny_vocabularies import byte_level

_CHATML = """{%- if tools %}{{ '<|im_start|>system\\n# Tools\\n' }}
{%- for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{% endfor %}
{{- '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
    {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.reasoning_content %}{{ '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}
    {{- message.content or '' }}
    {%- for call in message.tool_calls or [] %}
        {%- set call = call.function or call %}
        {%- if not loop.first or message.content %}{{ '\\n' }}{% endif %}
        CALL
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}OPENED{% endif %}"""

_JSON_CALL = """{{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}{{ call.arguments | tojson }}
        {{- '}\\n</tool_call>' }}"""
_XML_CALL = """{{- '<tool_call>\\n<function=' + call.name + '>\\n' }}
        {%- for name, value in call.arguments.items() %}
            {{- '<parameter=' + name + '>\\n' }}
            {{- value if value is string else (value | tojson if value is mapping or value is sequence else value) }}
            {{- '\\n</parameter>\\n' }}
        {%- endfor %}
        {{- '</function>\\n</tool_call>' }}"""

HERMES = _CHATML.replace("CALL", _JSON_CALL).replace("OPENED", "")
QWEN_XML = _CHATML.replace("CALL", _XML_CALL).replace("OPENED", "")
# The prompt opens the reasoning.
THINKING = _CHATML.replace("CALL", _XML_CALL).replace("OPENED", "{{ '<think>\\n' }}")

LLAMA3 = """{{- bos_token }}
{%- for message in messages %}
{%- if message.tool_calls %}
    {%- if message.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}
    {%- set call = message.tool_calls[0].function %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' }}
    {{- call.arguments | tojson }}{{ '}<|eot_id|>' }}
{%- else %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
    {%- if loop.first and tools %}
    {%- for tool in tools %}{{ tool | tojson }}{{ '\\n\\n' }}{% endfor %}
    {%- endif %}
    {{- message.content | trim }}{{ '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

_MISTRAL = """{{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'user' %}
    {%- if tools and loop.last %}{{ '[AVAILABLE_TOOLS]' }}{{ tools | tojson }}{{ '[/AVAILABLE_TOOLS]' }}{% endif %}
    {{- '[INST]' + message.content + '[/INST]' }}
{%- elif message.role == 'tool' %}
    {{- '[TOOL_RESULTS]' + message.content + '[/TOOL_RESULTS]' }}
{%- elif message.tool_calls %}
    CALLS
    {{- eos_token }}
{%- else %}
    {{- message.content + eos_token }}
{%- endif %}
{%- endfor %}"""
MISTRAL = _MISTRAL.replace(
    "CALLS",
    """{{- '[TOOL_CALLS][' }}
    {%- for call in message.tool_calls %}
        {{- '{"name": "' + call.function.name + '", "arguments": ' }}{{ call.function.arguments | tojson }}
        {{- ', "id": "' + call.id + '"}' }}{{ ', ' if not loop.last }}
    {%- endfor %}
    {{- ']' }}""",
)
MISTRAL_MARKED = _MISTRAL.replace(
    "CALLS",
    """{%- for call in message.tool_calls %}
        {{- '[TOOL_CALLS]' + call.function.name + '[CALL_ID]' + call.id + '[ARGS]' }}
        {{- call.function.arguments | tojson }}
    {%- endfor %}""",
)

CHATML_TOKENS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
LLAMA3_CONTROL = (
    *("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>", "<|eom_id|>", "<|eot_id|>"),
)
MISTRAL_CONTROL = (
    *("<s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    *("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "[THINK]", "[/THINK]", "</s>"),
)

# Template -> its dialect, and the metadata of a model with it.
ROWS: dict[str, tuple[str, dict[str, object]]] = {
    "hermes": ("hermes", {**byte_level(user_defined=CHATML_TOKENS), "tokenizer.chat_template": HERMES}),
    "qwen-xml": ("qwen-xml", {**byte_level(user_defined=CHATML_TOKENS), "tokenizer.chat_template": QWEN_XML}),
    "thinking": ("qwen-xml", {**byte_level(user_defined=CHATML_TOKENS), "tokenizer.chat_template": THINKING}),
    "llama3": ("llama3", {**byte_level(control=LLAMA3_CONTROL), "tokenizer.chat_template": LLAMA3}),
    "mistral": ("mistral", {**byte_level(control=MISTRAL_CONTROL), "tokenizer.chat_template": MISTRAL}),
    "mistral-marked": ("mistral", {**byte_level(control=MISTRAL_CONTROL), "tokenizer.chat_template": MISTRAL_MARKED}),
    **{row: (family.dialect, family.metadata) for row, family in FAMILIES.items()},
}
