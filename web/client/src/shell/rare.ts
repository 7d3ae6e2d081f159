/** Parts that few pages need, and none to connect, loaded as one: requests about accounts, people,
 * chats and older messages, search, login, a store without IndexedDB, `events()` for bots. */

export { fetchAfter, fetchAround, fetchOlder, fetchOne } from "./history.ts";
export { learnChat, learnPeople } from "./learning.ts";
export { Events } from "./listening.ts";
export { logIn } from "./login.ts";
export { MemoryBackend, openInSession } from "./memory.ts";
export { ofChat, ofClient } from "./remote.ts";
