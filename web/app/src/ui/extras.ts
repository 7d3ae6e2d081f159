// Views that are not needed to read and write messages: loaded together, when the first is shown.

export { About } from "./about.tsx";
export { ChatSearch } from "./chat-search.tsx";
export { NewChat } from "./new-chat.tsx";
export { Settings } from "./settings.tsx";
