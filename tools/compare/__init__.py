"""Comparisons of imp with other engines and servers, on one framework of rounds, goals, tables and reports."""

# The modules by the words of the command line.
NAMES = {
    "peers": "compare.peers.command",
    "servers": "compare.servers.command",
    "quality": "compare.quality.command",
    "sampling": "compare.sampling.command",
    "guesses": "compare.guesses",
    "vectors": "compare.vectors.command",
    "images": "compare.images",
    "front_end": "compare.front_end.command",
}
