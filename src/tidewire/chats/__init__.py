"""Chat management: direct chats, groups, members and roles."""
