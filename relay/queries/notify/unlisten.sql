-- Leave nothing behind on a pooled session that somebody else will use.
UNLISTEN *
