"""What a failed call tells its caller, in words of no transport."""
