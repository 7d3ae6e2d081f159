/** The part that the leading tab loads to hold the connection. */

export { Driver } from "./driver.ts";
