"""`relay pipeline replay`: messages of the lake sent again."""
