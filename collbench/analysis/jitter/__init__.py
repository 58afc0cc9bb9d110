"""Stragglers: who is late, how often, what that costs everybody, and what it would cost more ranks."""
