"""A conversation with a loaded or a served model: `imp chat` and `imp call chat` hold the same one."""
