import"./chunk-DULC6P74.js";
