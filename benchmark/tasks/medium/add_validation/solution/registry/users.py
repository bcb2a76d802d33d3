"""Who is registered."""


class ValidationError(ValueError):
    """An entry that cannot be registered; `field` says which part of it is wrong."""

    def __init__(self, field, message):
        super().__init__(f"{field}: {message}")
        self.field = field


class Registry:
    """Users by their email."""

    def __init__(self):
        self._users = {}

    def add(self, name, email, age):
        """Register somebody and return the entry."""
        user = {"name": _name(name), "email": self._email(email), "age": _age(age)}
        self._users[user["email"]] = user
        return user

    def find(self, email):
        """Return the entry with this email, or None."""
        return self._users.get(email)

    def __len__(self):
        return len(self._users)

    def _email(self, email):
        email = _email(email)
        if email in self._users:
            raise ValidationError("email", "it is registered already")
        return email


def _name(name):
    if not isinstance(name, str) or not name.strip():
        raise ValidationError("name", "it is blank")
    if len(name.strip()) > 80:
        raise ValidationError("name", "it is longer than 80 characters")
    return name.strip()


def _email(email):
    if not isinstance(email, str) or any(c.isspace() for c in email) or email.count("@") != 1:
        raise ValidationError("email", "it is no address")
    local, domain = email.split("@")
    if not local or "." not in domain.strip(".") or domain.strip(".") != domain:
        raise ValidationError("email", "it is no address")
    return email.lower()


def _age(age):
    if not isinstance(age, int) or isinstance(age, bool) or not 0 <= age <= 150:
        raise ValidationError("age", "it is not a number from 0 to 150")
    return age
