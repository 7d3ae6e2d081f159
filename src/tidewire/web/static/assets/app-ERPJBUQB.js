import"./chunk-VBHFISLF.js";
