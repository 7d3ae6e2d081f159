"""Words and rules of messaging: ids, messages, chats, delivery, errors, limits. PURE."""
