import{R as a,S as b}from"./chunk-MNDZKA2A.js";export{a as TidewireChat,b as define};
