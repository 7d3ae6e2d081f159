import{R as a,S as b}from"./chunk-IMXDD734.js";export{a as TidewireChat,b as define};
