"""imp.conf: one table of keys, read from file, environment and command line into frozen Settings."""

from imp_service.config.config import Config
from imp_service.config.errors import ConfigError
from imp_service.config.kinds import AUTO, Auto
from imp_service.config.read_settings import read_settings
from imp_service.config.settings import Settings

__all__ = ["AUTO", "Auto", "Config", "ConfigError", "Settings", "read_settings"]
