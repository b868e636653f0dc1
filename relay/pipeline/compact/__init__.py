"""`relay pipeline compact`: small files of a day written as one."""
