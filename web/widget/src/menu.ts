// The menus of messages, loaded when the first of them is wanted, with their style.

import style from "style:./menu.css";

export * from "../../app/src/ui/message-menu.tsx";
export { style };
