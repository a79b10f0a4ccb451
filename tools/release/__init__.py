"""Parts of tools/release.py. They import only the standard library, so that it runs in any clean checkout."""
