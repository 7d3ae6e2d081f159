import"./chunk-DQWZYS2A.js";
