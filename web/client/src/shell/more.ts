/** What the tab that leads loads, to hold the connection. */

export { Driver } from "./driver.ts";
