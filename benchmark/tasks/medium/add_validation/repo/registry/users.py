"""Who is registered."""


class Registry:
    """Users by their email."""

    def __init__(self):
        self._users = {}

    def add(self, name, email, age):
        """Register somebody and return the entry."""
        user = {"name": name, "email": email, "age": age}
        self._users[email] = user
        return user

    def find(self, email):
        """Return the entry with this email, or None."""
        return self._users.get(email)

    def __len__(self):
        return len(self._users)
