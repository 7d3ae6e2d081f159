import{R as a,S as b}from"./chunk-WJKR42WN.js";export{a as TidewireChat,b as define};
