import"./chunk-R2L3PCDO.js";
