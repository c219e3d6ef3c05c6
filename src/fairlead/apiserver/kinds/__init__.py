"""Which kinds are served, and what is special about each built-in one?"""
