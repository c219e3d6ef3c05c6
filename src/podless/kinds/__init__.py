"""The served kinds, and the behaviour of the built-in ones beyond their schemas."""
