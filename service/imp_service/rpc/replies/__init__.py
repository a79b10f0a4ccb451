"""What a caller is told: messages of results, statuses of failures, and the load."""
