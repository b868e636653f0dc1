"""Settings of the project: one app, one database, the one that holds the queue."""

import os

from psycopg.conninfo import conninfo_to_dict

SECRET_KEY = os.environ.get("SECRET_KEY", "for this example only")
INSTALLED_APPS = ["shop"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

_url = conninfo_to_dict(os.environ["DATABASE_URL"])
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": _url.pop("dbname"), "OPTIONS": _url}}
