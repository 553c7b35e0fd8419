/** Jobs of `driver.js` in a page. */

import { run } from "./driver.js";

globalThis.run = run;
