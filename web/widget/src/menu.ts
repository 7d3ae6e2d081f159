// The menus of messages with their style, loaded when the first one is opened.

import style from "style:./menu.css";

export * from "../../app/src/ui/message-menu.tsx";
export { style };
