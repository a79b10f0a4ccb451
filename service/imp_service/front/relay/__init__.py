"""The relay: answers HTTP clients with what servers answer, and joins the halves of broken streams."""
