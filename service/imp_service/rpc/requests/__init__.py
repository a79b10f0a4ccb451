"""What a caller asks: each field's rule as data, all checked at once, then read into the generation room's options."""
