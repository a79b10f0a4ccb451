"""Parts of tools/release.py. They import the standard library alone, so that it runs in any clean checkout."""
