import"./chunk-3UU4VURR.js";
