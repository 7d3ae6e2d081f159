// What is not needed to read and to write: loaded together, when the first of it is shown.

export { About } from "./about.tsx";
export { ChatSearch } from "./chat-search.tsx";
export { NewChat } from "./new-chat.tsx";
export { Settings } from "./settings.tsx";
