"""`relay pipeline replay`: sends messages of the lake again."""
