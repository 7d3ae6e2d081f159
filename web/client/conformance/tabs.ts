/** A page for tests of several tabs. */

import { Client } from "../src/index.ts";
import { person } from "./person.ts";

Object.assign(globalThis, { page: person((url, wish) => Client.open(url, wish)) });
