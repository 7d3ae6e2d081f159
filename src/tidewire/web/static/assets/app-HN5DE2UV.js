import"./chunk-CNESV6GM.js";
