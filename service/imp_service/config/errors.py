"""The one error of imp.conf, `--set` and `IMP_SECTION__KEY`: where it is, what was found, what was expected."""

from imp_service.config.toml import excerpt


class ConfigError(Exception):
    """Settings that cannot be used; nothing of them is in effect."""

    def __init__(self, where: str, message: str, *, reason: str = "CONFIG_INVALID") -> None:
        self.where = where
        self.reason = reason
        self.message = f"{excerpt(where, 200, keep='end')}: {message}"
        super().__init__(f"{reason}: {self.message}")
