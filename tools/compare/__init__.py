"""Comparisons of imp with other engines and servers, on one framework of rounds, goals, tables and reports."""
