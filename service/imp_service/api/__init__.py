"""What callers of a model pass and get, in one vocabulary for a model in this process and for one behind a server.

Options, keywords, prompts, replies and errors, as plain data. The room imports nothing but the standard library, and
its own modules relatively: `imp-client` packs it under another name.
"""
