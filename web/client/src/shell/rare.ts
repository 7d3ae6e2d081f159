/** What few pages need, and none to connect, loaded as one: to ask the server about accounts, people,
 * chats and their past, to search, to log in, to do without IndexedDB, to read events as a bot does. */

export { fetchAfter, fetchAround, fetchOlder, fetchOne } from "./history.ts";
export { learnChat, learnPeople } from "./learning.ts";
export { Events } from "./listening.ts";
export { logIn } from "./login.ts";
export { MemoryBackend, openInSession } from "./memory.ts";
export { ofChat, ofClient } from "./remote.ts";
